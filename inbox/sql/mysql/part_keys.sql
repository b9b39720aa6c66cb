-- The keys of rows that are locked. ?1 a JSON array.
JSON_TABLE(?1, '$[*]' COLUMNS (consumer VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.consumer', id CHAR(32) PATH '$.id'
     , source VARCHAR(200) CHARACTER SET utf8mb4 PATH '$.source')) AS chosen
 STRAIGHT_JOIN {{table}} AS m ON m.consumer = chosen.consumer COLLATE utf8mb4_bin AND m.message_id = UNHEX(chosen.id)
   AND m.source = chosen.source COLLATE utf8mb4_bin
