package sqlserver

import (
	"context"
	"fmt"

	"github.com/gorm-fanout/fanout/internal/store/claims"
	"github.com/gorm-fanout/fanout/internal/store/driver"
)

// Defer implements driver.Delivery.
func (s *Store) Defer(ctx context.Context, claim *driver.Claim) (int, error) {
	deferred, err := claims.Defer(ctx, thin{s}, claim)
	if err != nil {
		return 0, fmt.Errorf("sqlserver: defer waiting rows in %s: %w", s.table, explain(err))
	}
	return deferred, nil
}
