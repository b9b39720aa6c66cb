package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/gorm-fanout/fanout/brokers/signature"
)

// signKey is the section of a broker with the keys that sign its messages.
const signKey = "sign"

// SigningKeys returns the keys that sign the messages of a broker, nil where they are not signed. The
// error says which key is wrong, and shows none; a configuration that is valid has no such error.
func (c *Config) SigningKeys(broker string) (*signature.Keys, error) {
	return signingKeys(c.Brokers[broker].Sign)
}

func signingKeys(texts map[string]Secret) (*signature.Keys, error) {
	if len(texts) == 0 {
		return nil, nil //nolint:nilnil // messages are not signed
	}
	keys := new(signature.Keys)
	for _, id := range slices.Sorted(maps.Keys(texts)) { // so that every process writes them in one order
		if err := keys.Add(id, texts[id].Reveal()); err != nil {
			return nil, err
		}
	}
	return keys, keys.CanSign()
}

// sign reads keys by their ids. Each is looked at by itself, so that every problem has its line.
func (o *object) sign() map[string]Secret {
	section := o.object(signKey)
	section.takesAny("", textShape)
	if f := o.find(signKey); f != nil && !f.bad && !section.broken && len(section.fields) == 0 {
		o.rejectf(f, "is empty: name a key by its id, as in 2026-11: ${PARTNER_KEY}, or remove it")
	}
	var keys map[string]Secret
	for _, f := range section.fields {
		if err := signature.CheckID(f.name); err != nil { // the path is without the id, which may be a key
			o.problemf(f.key, section.path, "%s: write id: key", withoutPackage(err))
			continue
		}
		if section.get(f.name) == nil || !o.readTextWithout(f, controlButLineEnd) {
			continue
		}
		text := Secret(f.text)
		if _, err := signingKeys(map[string]Secret{f.name: text}); err != nil {
			o.rejectf(f, "%s", strings.TrimPrefix(withoutPackage(err), fmt.Sprintf("key %q: ", f.name))) // which the path has
			continue
		}
		if keys == nil {
			keys = map[string]Secret{}
		}
		keys[f.name] = text
	}
	if _, err := signingKeys(keys); err != nil {
		o.rejectf(o.find(signKey), "%s", withoutPackage(err))
	}
	return keys
}

// controlButLineEnd is true for characters that no key has, not in PEM either.
func controlButLineEnd(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\r' }

// withoutPackage is an error of package signature as a problem says it, behind the path of the key.
func withoutPackage(err error) string { return strings.TrimPrefix(err.Error(), "signature: ") }
