-- Create tokens. Parameters: at, tokens: a JSON array of objects with consumer and value. Two who create the same ones lock them in one order.
-- No gap is locked.
INSERT INTO {{table}} (created_at, kind, consumer, token)
SELECT @at, 'token', sent.consumer, sent.item
  FROM JSON_TABLE(@tokens, '$[*]' COLUMNS (consumer VARCHAR(256) CHARACTER SET utf8mb4 PATH '$.consumer', item VARCHAR(128) CHARACTER SET utf8mb4 PATH '$.value')) AS sent
 ORDER BY sent.consumer COLLATE utf8mb4_bin, sent.item COLLATE utf8mb4_bin
    ON DUPLICATE KEY UPDATE created_at = created_at
