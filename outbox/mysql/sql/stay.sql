-- Let the session say nothing for weeks: it holds the lock of a name.
SET SESSION wait_timeout = 2147483
