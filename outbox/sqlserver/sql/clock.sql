-- What time is it here? In a batch of its own, so that it can be timed.
SELECT SYSUTCDATETIME() AS fanout_clock;
