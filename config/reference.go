package config

import _ "embed"

//go:embed fanout.example.yaml
var reference string

// Reference returns an example configuration with every key, what it means and its default. It
// loads once the variables that it names, such as DATABASE_URL, are set in the environment.
func Reference() string { return reference }
