package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// What is wrong is shown, unless it looks like a password behind the wrong key.
func TestShown(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"hunter2", "S3cret", "s3cr3tPassw0rd", "pa$$word", "Tr0ub4dor", "a+b", "0f8fad5bd9cb469fa16570867728950e", "redis://u:p@h", "x/y", "corr3ct_horse"} {
		assert.Equal(t, "(not shown: it may be a secret)", shown(secret), secret)
	}
	for _, plain := range []string{"", "10s", "1h30m", "-5", "0", "1_000", "10MB", "per_kye", "Partner", "Ordering.*", "Ordering.V2.*", "127.0.0.1:8088", "partner.{stream}", "order placed"} {
		if plain != "" {
			assert.Equal(t, `"`+plain+`"`, shown(plain))
		}
	}
}
