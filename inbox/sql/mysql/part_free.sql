-- Whether a message that is recorded may be handled. ?3 type. As texts, types that differ by spaces
-- at their ends would be equal.
status IN ('failed', 'redriven', 'expected') AND (type IS NULL OR CAST(type AS BINARY) = CAST(?3 AS BINARY))
