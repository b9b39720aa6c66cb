-- No plan of a claim depends on its arguments, and one made for each would take a twentieth of the time of a batch of 500.
SELECT set_config('plan_cache_mode', 'force_generic_plan', true)
