package gormplugins_test

import (
	_ "github.com/go-gorm/caches/v4"
	_ "gorm.io/sharding"
)
