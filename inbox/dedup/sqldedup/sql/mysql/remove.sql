-- Remove tokens. Parameter: tokens: a JSON array of objects with consumer and value.
-- Plan: the primary key, for each of them.
DELETE old
  FROM JSON_TABLE(@tokens, '$[*]' COLUMNS (consumer VARCHAR(256) CHARACTER SET utf8mb4 PATH '$.consumer', item VARCHAR(128) CHARACTER SET utf8mb4 PATH '$.value')) AS used
 STRAIGHT_JOIN {{table}} AS old
    ON old.kind = 'token' AND old.consumer = used.consumer COLLATE utf8mb4_bin AND old.token = used.item COLLATE utf8mb4_bin
