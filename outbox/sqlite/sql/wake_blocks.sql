-- Blocks whose rows come back to the way of claims. Named parameter: ids (JSON). Their rows follow with set_deferred.sql.
UPDATE {{table}}_key_blocks SET wake_at = NULL WHERE block_id IN (SELECT value FROM json_each(:ids))
