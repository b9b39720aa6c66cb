-- Forget that rows wait alone. Runs under the lock. @ids (a JSON list)
-- Plan: the entries by primary key.
DELETE FROM {{table}}_key_blocks WHERE block_id IN (SELECT value FROM json_each(@ids)) AND ordering_key IS NULL
