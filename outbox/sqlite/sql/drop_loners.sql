-- What waited alone waits no more. Named parameter: ids (JSON) of rows that were brought back.
DELETE FROM {{table}}_key_blocks WHERE block_id IN (SELECT value FROM json_each(:ids)) AND ordering_key IS NULL
