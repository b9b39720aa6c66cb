-- Give a lock back, if it is still ours. Named parameters: name, token.
DELETE FROM {{table}}_locks WHERE name = :name AND token = :token
