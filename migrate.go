package fanout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gorm-fanout/fanout/config"
)

// Migrate creates or updates the outbox table in every database of the configuration, as "fanout migrate"
// does. It is idempotent and safe to run from several processes at once. Tables that another migration
// tool made from what "fanout migrate --print" shows are recorded; the error names how tables differ
// that are not as they should be (*admin.SchemaError), and nothing of that database is changed then.
// Of the options, [WithDB] counts: a handle whose database the configuration does not name is
// migrated, too, where it names none. The user of the database needs the right to create tables.
func Migrate(ctx context.Context, cfg *config.Config, opts ...Option) error {
	o := gather(opts)
	cfg = withHandles(cfg, o)
	if err := o.checkHandles(cfg); err != nil {
		return err
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(cfg.Databases)) {
		if err := migrate(ctx, cfg, name, o); err != nil {
			problems = append(problems, fmt.Errorf("fanout: database %q: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

func migrate(ctx context.Context, cfg *config.Config, name string, o *options) error {
	store, err := openStore(ctx, cfg, name, o)
	if err != nil {
		return err
	}
	_, err = store.Migrate(ctx)
	return errors.Join(err, store.Close())
}
