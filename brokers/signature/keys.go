package signature

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"slices"
	"strings"
)

const (
	prefixHMAC    = "whsec_"
	prefixPrivate = "whsk_"
	prefixPublic  = "whpk_"

	blockPrivate = "PRIVATE KEY"
	blockPublic  = "PUBLIC KEY"

	// leastSecretBytes is the size of SHA-256, below which a secret weakens HMAC (RFC 2104, section 3).
	leastSecretBytes = 32
	mostSecretBytes  = 64
	mostIDBytes      = 64
	// mostSigning keys sign a message: two in a rotation, of both kinds. Their signatures have 646 bytes
	// at most, and Pub/Sub takes 1,024 for an attribute.
	mostSigning = 4
)

// Keys are the keys that sign or verify, by their ids. The zero value has none. Add them first: after that
// all methods are safe for concurrent use. However they are printed or logged, by value or within a struct
// too, no key is shown.
type Keys struct{ list []key }

// A key is in functions, since what prints a value of Keys sees no further.
type key struct {
	id, version string
	sign        func(text []byte) []byte // nil: it only verifies
	verifies    func(text, signature []byte) bool
}

func (k *key) signs() bool { return k.sign != nil }

func hmacKey(secret []byte) key {
	sign := func(text []byte) []byte {
		mac := hmac.New(sha256.New, secret)
		mac.Write(text)
		return mac.Sum(nil)
	}
	return key{version: versionHMAC, sign: sign, verifies: func(text, signature []byte) bool { return hmac.Equal(sign(text), signature) }}
}

func privateKey(private ed25519.PrivateKey) key {
	public, _ := private.Public().(ed25519.PublicKey) // which it always is
	signs := publicKey(public)
	signs.sign = func(text []byte) []byte { return ed25519.Sign(private, text) }
	return signs
}

func publicKey(public ed25519.PublicKey) key {
	return key{version: versionEd25519, verifies: func(text, signature []byte) bool { return ed25519.Verify(public, text, signature) }}
}

var errKey = fmt.Errorf("the key is not %s and %d to %d bytes in base64, not %s or %s and a key of Ed25519 in base64, and not such a key in PEM",
	prefixHMAC, leastSecretBytes, mostSecretBytes, prefixPrivate, prefixPublic)

// Add adds a key in one of the forms that the package's documentation lists. Its id has 1 to 64 letters,
// digits, ".", "_" and "-", and is added once. The error names what is wrong, and never shows the key.
func (k *Keys) Add(id, text string) error {
	if err := CheckID(id); err != nil {
		return err
	}
	if k.find(id) != nil {
		return fmt.Errorf("signature: key id %q is there already", id)
	}
	added, err := parseKey(text)
	if err != nil {
		return fmt.Errorf("signature: key %q: %w", id, err)
	}
	added.id = id
	k.list = append(k.list, added)
	return nil
}

// CanSign says why these keys cannot sign messages: there are none, more than four, or one is public. Nil:
// each of them signs.
func (k *Keys) CanSign() error {
	if k == nil || len(k.list) == 0 || len(k.list) > mostSigning {
		return fmt.Errorf("signature: there are %d keys to sign with: give 1 to %d, the new one and, while partners change over, the old one", k.len(), mostSigning)
	}
	for i := range k.list {
		if !k.list[i].signs() {
			return fmt.Errorf("signature: key %q: it is public, and can only verify: give the private key", k.list[i].id)
		}
	}
	return nil
}

func (k *Keys) len() int {
	if k == nil {
		return 0
	}
	return len(k.list)
}

func (k *Keys) find(id string) *key {
	for i := range k.list {
		if k.list[i].id == id {
			return &k.list[i]
		}
	}
	return nil
}

// CheckID says what is wrong with the id of a key: it has 1 to 64 letters, digits, ".", "_" and "-". It does not show an id
// that is a key, as where the two have changed places.
func CheckID(id string) error {
	switch {
	case strings.HasPrefix(id, prefixHMAC), strings.HasPrefix(id, prefixPrivate), strings.HasPrefix(id, prefixPublic):
		return errors.New("signature: a key stands where its id should be")
	case !validID(id):
		return fmt.Errorf("signature: a key id has other characters than letters, digits, '.', '_' and '-', or has not 1 to %d of them", mostIDBytes)
	}
	return nil
}

func validID(id string) bool {
	for i := range len(id) {
		if c := id[i]; ('a' > c || c > 'z') && ('A' > c || c > 'Z') && ('0' > c || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return id != "" && len(id) <= mostIDBytes
}

func parseKey(text string) (key, error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "-----BEGIN ") {
		return parsePEM(text)
	}
	at := strings.Index(text, "_") + 1
	raw, err := base64.StdEncoding.Strict().DecodeString(text[at:])
	if err != nil {
		return key{}, errKey // the cause would quote a part of it
	}
	switch n := len(raw); {
	case text[:at] == prefixHMAC && n >= leastSecretBytes && n <= mostSecretBytes:
		return hmacKey(raw), nil
	case text[:at] == prefixPrivate && n == ed25519.SeedSize:
		return privateKey(ed25519.NewKeyFromSeed(raw)), nil
	case text[:at] == prefixPrivate && n == ed25519.PrivateKeySize:
		private := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
		if subtle.ConstantTimeCompare(private, raw) != 1 {
			return key{}, errors.New("the public half of the private key is not its own")
		}
		return privateKey(private), nil
	case text[:at] == prefixPublic && n == ed25519.PublicKeySize:
		return publicKeyOf(raw)
	default:
		return key{}, errKey
	}
}

func parsePEM(text string) (key, error) {
	if ended := strings.Contains(text, "-----END "); ended && !strings.Contains(text, "\n") {
		const remedy = "or the key as whsk_ or whpk_ and base64"
		if strings.Contains(text, `\n`) {
			return key{}, errors.New(`the PEM has \n in place of the ends of its lines: give it line ends, as printf '%b' does, ` + remedy)
		}
		return key{}, errors.New("the PEM is on one line: give it line ends, in YAML behind |, " + remedy)
	}
	block, rest := pem.Decode([]byte(text))
	if block == nil || len(strings.TrimSpace(string(rest))) > 0 {
		return key{}, errors.New("the PEM cannot be read, or has more than one block")
	}
	var parsed any
	var err error
	switch block.Type {
	case blockPrivate:
		parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case blockPublic:
		parsed, err = x509.ParsePKIXPublicKey(block.Bytes)
	default:
		return key{}, fmt.Errorf("the PEM is neither %s nor %s: an encrypted key, or one of another form, is not read", blockPrivate, blockPublic)
	}
	switch of := parsed.(type) {
	case ed25519.PrivateKey:
		return privateKey(of), nil
	case ed25519.PublicKey:
		return publicKeyOf(of)
	}
	if err != nil {
		return key{}, errors.New("the key in the PEM cannot be read")
	}
	return key{}, errors.New("the key in the PEM is not one of Ed25519")
}

// smallOrder are the points of Ed25519 of which anyone can make signatures, without their signs: zeros, as of
// a placeholder, are one. Source: https://eprint.iacr.org/2020/1244, table 4 and 5.
var smallOrder = [...]string{
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
}

func publicKeyOf(public ed25519.PublicKey) (key, error) {
	point := bytes.Clone(public)
	point[len(point)-1] &= 0x7f
	if slices.Contains(smallOrder[:], hex.EncodeToString(point)) {
		return key{}, errors.New("the public key is none that was generated: with it, anyone could sign")
	}
	slices.Reverse(point) // of little endian
	if !isPoint(new(big.Int).SetBytes(point)) {
		return key{}, errors.New(`the public key is not one of Ed25519: its bytes are no point of the curve: compare them with those that "openssl pkey -pubout" prints`)
	}
	return publicKey(public), nil
}

// isPoint reports whether Ed25519 has a point with this y: ed25519.Verify takes any bytes for a key, with which nothing
// verifies. There is an x for it where (y^2-1)/(dy^2+1) is a square; so is then (y^2-1)(dy^2+1), by which nothing is
// divided. Source: RFC 8032, section 5.1.3.
func isPoint(y *big.Int) bool {
	one := big.NewInt(1)
	field := new(big.Int).Sub(new(big.Int).Lsh(one, 255), big.NewInt(19))
	d := new(big.Int).ModInverse(big.NewInt(121666), field)
	d.Mul(d, big.NewInt(-121665))
	square := new(big.Int).Mul(y, y)
	product := new(big.Int).Sub(square, one)
	product.Mul(product, d.Add(d.Mul(d, square), one))
	return big.Jacobi(product.Mod(product, field), field) >= 0
}

// Format implements fmt.Formatter: it shows how many keys there are.
func (k *Keys) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, k.shown()) }

// LogValue implements slog.LogValuer.
func (k *Keys) LogValue() slog.Value { return slog.StringValue(k.shown()) }

func (k *Keys) shown() string { return fmt.Sprintf("[%d keys]", k.len()) }
