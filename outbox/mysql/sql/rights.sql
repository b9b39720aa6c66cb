-- May this user remove rows? The server asks for the right, and removes nothing.
EXPLAIN DELETE FROM {{table}} WHERE id = 0
