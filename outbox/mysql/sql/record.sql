-- Record a step that was applied. @version, @name
INSERT INTO {{table}}_migrations (version, name) VALUES (@version, @name)
