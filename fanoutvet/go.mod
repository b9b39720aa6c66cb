module github.com/gorm-fanout/fanout/fanoutvet

go 1.25.0

require golang.org/x/tools v0.49.0

require (
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/mod v0.40.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
)

require github.com/stretchr/testify v1.12.1
