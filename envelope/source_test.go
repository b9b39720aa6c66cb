package envelope_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/envelope"
)

func TestSnakeCase(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                              "",
		"Order":                         "order",
		"order":                         "order",
		"OrderLine":                     "order_line",
		"orderLine":                     "order_line",
		"HTTPRequest":                   "http_request",
		"RequestHTTP":                   "request_http",
		"MyHTTPRequest":                 "my_http_request",
		"OAuth2Token":                   "oauth2_token",
		"MyOAuthToken":                  "my_oauth_token",
		"DAOAuthority":                  "dao_authority",
		"OAuthority":                    "o_authority",
		"GraphQLQuery":                  "graphql_query",
		"IPv4Address":                   "ipv4_address",
		"SHA256Sum":                     "sha256_sum",
		"Base64URL":                     "base64_url",
		"V2Order":                       "v2_order",
		"OrderIDs":                      "order_ids",
		"URLsSeen":                      "urls_seen",
		"Order_Line":                    "order_line",
		"order_line":                    "order_line",
		"_order__line_":                 "order_line",
		"Order-Line::X":                 "order_line_x",
		"Größe":                         "größe",
		"ÄnderungsAuftrag":              "änderungs_auftrag",
		"Basket[example.com/shop.Item]": "basket_item",
		"Pair[a/b.X,*c/d.YZ]":           "pair_x_yz",
		"Local·3":                       "local",
		"A":                             "a",
		"AB":                            "ab",
	} {
		require.Equal(t, want, envelope.SnakeCase(in), in)
		require.Equal(t, want, envelope.SnakeCase(want), "a second time changes nothing")
	}
}
