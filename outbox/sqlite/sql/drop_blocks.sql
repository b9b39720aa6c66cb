-- No row waits for these blocks any more: their keys are free. Named parameters: ids (JSON), shard.
DELETE FROM {{table}}_key_blocks WHERE block_id IN (SELECT value FROM json_each(:ids)) AND shard = :shard
