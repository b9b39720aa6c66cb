-- Settings of a verification's transaction: a plan that was made while the table was empty may be kept for long, and must not
-- read it from end to end.
SELECT set_config('enable_seqscan', 'off', true)
     , set_config('enable_bitmapscan', 'off', true)
