-- Nobody waits for these blocks any more: their keys are free. Named parameter: ids (JSON).
DELETE FROM {{table}}_key_blocks WHERE block_id IN (SELECT value FROM json_each(:ids))
