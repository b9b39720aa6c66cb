-- Record a step. Parameters: version, name, at.
INSERT INTO {{table}}_migrations (version, name, applied_at) VALUES (@version, @name, @at)
