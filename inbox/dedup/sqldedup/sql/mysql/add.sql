-- Remember one entry, or leave it as it is. Parameters: kind, consumer, token, at. No gap is locked.
INSERT INTO {{table}} (created_at, kind, consumer, token)
VALUES (@at, @kind, @consumer, @token)
    ON DUPLICATE KEY UPDATE created_at = created_at
