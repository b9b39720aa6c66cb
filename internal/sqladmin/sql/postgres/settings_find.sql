-- Settings of a transaction in which an operator's filter is answered: with a plan that is made for its arguments, so that what is not asked for
-- costs nothing. One that fits all of them would read the whole table.
SELECT set_config('plan_cache_mode', 'force_custom_plan', true)
     , set_config('jit', 'off', true)
