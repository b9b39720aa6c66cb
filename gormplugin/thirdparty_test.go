package gormplugin_test

import (
	_ "go.opentelemetry.io/otel/sdk/trace"
	_ "gorm.io/plugin/dbresolver"
	_ "gorm.io/plugin/opentelemetry/tracing"
)
