-- One migration at a time, until the end of the transaction: SQLite has one writer. Parameter: name.
SELECT @name
