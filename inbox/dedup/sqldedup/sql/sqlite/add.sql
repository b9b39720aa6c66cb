-- Remember one entry, or leave it as it is. Parameters: kind, consumer, token, at.
INSERT INTO {{table}} (created_at, kind, consumer, token)
VALUES (@at, @kind, @consumer, @token)
    ON CONFLICT DO NOTHING
