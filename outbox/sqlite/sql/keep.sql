-- Keep a lock for longer, if it is still ours. Named parameters: name, token, until.
UPDATE {{table}}_locks SET until = :until WHERE name = :name AND token = :token
