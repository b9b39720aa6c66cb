GREATEST(COALESCE(m.locked_until, m.available_at), COALESCE(m.available_at, m.locked_until))
