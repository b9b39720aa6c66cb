-- How many locks are there for ordering keys?
SELECT COUNT(*) FROM {{table}}_key_slots
