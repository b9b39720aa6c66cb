package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Names of the headers of Standard Webhooks.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

const (
	// DefaultTolerance is how old, or how far ahead, a timestamp may be for a [Verifier].
	DefaultTolerance = 5 * time.Minute

	secretPrefix     = "whsec_"
	signatureVersion = "v1"
	leastSecretBytes = 24
	mostSecretBytes  = 64
	mostSecrets      = 5
	// mostSignatures bounds what a sender can make a receiver compare.
	mostSignatures = 20
)

// NewSecret makes a secret of 32 random bytes, in the form of Standard Webhooks.
func NewSecret() string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // which never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(secret)
}

// parseSecrets never shows one of them.
func parseSecrets[S ~string](secrets []S) ([][]byte, error) {
	if len(secrets) == 0 || len(secrets) > mostSecrets {
		return nil, fmt.Errorf("there are %d secrets; give 1 to %d: the new one and, while the receiver changes over, the old one", len(secrets), mostSecrets)
	}
	keys := make([][]byte, len(secrets))
	for i, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(string(secret), secretPrefix))
		if err != nil || len(key) < leastSecretBytes || len(key) > mostSecretBytes {
			return nil, fmt.Errorf(`secret %d is not %q and %d to %d bytes in base64: make one with "echo whsec_$(openssl rand -base64 32)"`,
				i+1, secretPrefix, leastSecretBytes, mostSecretBytes)
		}
		keys[i] = key
	}
	return keys, nil
}

// sign is the signature of a message: HMAC-SHA256 of id, timestamp and body, with "." between
// (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md).
func sign(key []byte, id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// signatures is the value of the header.
func signatures(keys [][]byte, id, timestamp string, body []byte) string {
	all := make([]string, len(keys))
	for i, key := range keys {
		all[i] = signatureVersion + "," + base64.StdEncoding.EncodeToString(sign(key, id, timestamp, body))
	}
	return strings.Join(all, " ")
}

// ErrSignature is the error of a request that does not come from whoever has the secret, or is too old.
var ErrSignature = errors.New("webhook: the signature is not valid")

// A Verifier checks, at the receiver, that a request was sent by whoever has a secret. Make one with
// [NewVerifier]. Its methods are safe for concurrent use.
type Verifier struct {
	keys      [][]byte
	tolerance time.Duration
}

// NewVerifier takes the secrets of which one must have signed: one, or two while it is changed. A
// timestamp may differ from this machine's clock by tolerance; 0 = [DefaultTolerance].
func NewVerifier(tolerance time.Duration, secrets ...string) (*Verifier, error) {
	keys, err := parseSecrets(secrets)
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	if tolerance <= 0 {
		tolerance = DefaultTolerance
	}
	return &Verifier{keys: keys, tolerance: tolerance}, nil
}

// Verify checks a request by its headers and its body, which must be the bytes that arrived. The error
// is [ErrSignature] with the reason. A request may come several times: the header webhook-id is the
// same then.
func (v *Verifier) Verify(header http.Header, body []byte) error {
	id, timestamp := header.Get(HeaderID), header.Get(HeaderTimestamp)
	if id == "" || timestamp == "" || header.Get(HeaderSignature) == "" {
		return fmt.Errorf("%w: one of the headers webhook-id, webhook-timestamp and webhook-signature is missing", ErrSignature)
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: webhook-timestamp is not a number of seconds", ErrSignature)
	}
	if age := time.Since(time.Unix(seconds, 0)); age > v.tolerance || age < -v.tolerance {
		return fmt.Errorf("%w: webhook-timestamp is more than %v away from now", ErrSignature, v.tolerance)
	}
	given := strings.SplitN(header.Get(HeaderSignature), " ", mostSignatures+1)
	ours := make([][]byte, len(v.keys)) // once, not for each that is given: a body may be large
	for i, key := range v.keys {
		ours[i] = sign(key, id, timestamp, body)
	}
	for _, one := range given[:min(len(given), mostSignatures)] {
		text, isOurs := strings.CutPrefix(one, signatureVersion+",")
		mac, err := base64.StdEncoding.DecodeString(text)
		if !isOurs || err != nil {
			continue // of another version, which a sender may give beside ours
		}
		for _, signature := range ours {
			if hmac.Equal(mac, signature) {
				return nil
			}
		}
	}
	return fmt.Errorf("%w: no signature in webhook-signature is one of the known secrets", ErrSignature)
}
