-- How long a statement waits for a row while its transaction has locked others: a tenth of the time after which the server looks for a
-- deadlock, so that ours is the one that breaks off, and not an UPDATE of another session that has waited longer.
set_config('lock_timeout', greatest(extract(epoch FROM current_setting('deadlock_timeout')::interval) * 100, 1)::int::text, true)
