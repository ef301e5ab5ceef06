"""The one door to the operating system, and what stands right behind it."""
