"""The long calls that keep a store: backup, restore, repair, publishing, taking in commits."""
