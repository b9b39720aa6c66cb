package dedup

import (
	"fmt"

	"github.com/gorm-fanout/fanout/inbox"
)

// AttributeToken is the flat field, attribute or extension of a message that holds its token.
// CloudEvents allow no underscore in names: there it is [AttributeTokenCloudEvents].
const (
	AttributeToken            = "deduplication_token"
	AttributeTokenCloudEvents = "deduplicationtoken"
)

// CarriedToken is the token that a message carries: the attribute [AttributeToken] of the delivery,
// else the extension of that name in its envelope, else that of a CloudEvent,
// [AttributeTokenCloudEvents]. A message without one is an error that is permanent: it is unknown
// whether it is a copy, and to drop it would lose it.
func CarriedToken(m *inbox.Message) (string, error) {
	if token := carriedToken(m); token != "" {
		return token, nil
	}
	return "", inbox.Permanent(fmt.Errorf(
		"dedup: message %s carries no token: its producer creates one and puts it into the attribute %s; where tokens are made of message keys, set Config.TokenOf to KeyToken",
		m.ID, AttributeToken))
}

// KeyToken is [CarriedToken] for messages of several producers: one that carries no token has its
// key for one. Their producers create the key's text as a token before they send. A message of a
// producer that does not is taken for a copy, and never processed. The key is the producer's word:
// whoever can write to the stream can use up a token, so let only trusted producers do that.
func KeyToken(m *inbox.Message) (string, error) {
	if token := carriedToken(m); token != "" {
		return token, nil
	}
	return m.Key.String(), nil
}

func carriedToken(m *inbox.Message) string {
	for _, name := range []string{AttributeToken, AttributeTokenCloudEvents, "ce-" + AttributeTokenCloudEvents} {
		if token := m.Attributes[name]; token != "" {
			return token
		}
	}
	if m.Envelope == nil {
		return ""
	}
	for _, name := range []string{AttributeToken, AttributeTokenCloudEvents} {
		if token, ok := m.Envelope.Metadata.Extensions[name].(string); ok && token != "" {
			return token
		}
	}
	return ""
}
