package envelope

// SnakeCase is snakeCase.
func SnakeCase(s string) string { return snakeCase(s) }
