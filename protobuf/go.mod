module github.com/gorm-fanout/fanout/protobuf

go 1.25.0

require (
	github.com/glebarez/sqlite v1.11.0
	github.com/gorm-fanout/fanout v0.1.0
	github.com/stretchr/testify v1.12.1
	google.golang.org/protobuf v1.36.12
	gorm.io/gorm v1.31.2
	pgregory.net/rapid v1.3.0
)
