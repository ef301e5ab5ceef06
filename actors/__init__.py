"""Who talks to whom: every thread, deadline and failure is owned here."""
