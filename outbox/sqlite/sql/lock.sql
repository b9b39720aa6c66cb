-- Take a lock, or take it over from a holder whose time is up. Named parameters: name, token, now, until.
INSERT INTO {{table}}_locks (name, token, until) VALUES (:name, :token, :until)
    ON CONFLICT (name) DO UPDATE SET token = excluded.token, until = excluded.until WHERE {{name}}_locks.until <= :now
