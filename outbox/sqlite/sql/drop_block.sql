-- Nothing is left behind a block: its key is free. Named parameter: block.
DELETE FROM {{table}}_key_blocks WHERE block_id = :block
