-- Create tokens. Parameters: at, tokens: a JSON array of objects with consumer and value.
INSERT INTO {{table}} (created_at, kind, consumer, token)
SELECT DISTINCT CAST(@at AS timestamptz), 'token', new.consumer, new.value
  FROM jsonb_to_recordset(CAST(@tokens AS jsonb)) AS new (consumer text, value text)
    ON CONFLICT DO NOTHING
