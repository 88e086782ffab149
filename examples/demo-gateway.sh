#!/bin/sh
# Starts the gateway with a made-up user, posts what OwnTracks would post, shows the answer and the
# budget, and stops. `make demo-gateway` runs it; BIN is where the hereish command is.
set -eu
bin=${BIN:-.venv/bin}
port=${PORT:-8035}
url=http://127.0.0.1:$port
command -v curl >/dev/null || { echo "this demo needs curl; please install it" >&2; exit 1; }
said=$(mktemp)
"$bin/hereish" serve --demo --port "$port" --log-level warning >"$said" 2>&1 &
gateway=$!
trap 'kill "$gateway" 2>/dev/null || true; wait "$gateway" 2>/dev/null || true; rm -f "$said"' EXIT
trap 'exit 1' HUP INT PIPE TERM

tries=0
until curl --silent --fail --output /dev/null "$url/readyz"; do
    tries=$((tries + 1))
    if [ "$tries" -gt 300 ] || ! kill -0 "$gateway" 2>/dev/null; then
        cat "$said" >&2
        echo "the gateway did not start; is port $port taken? Try make demo-gateway PORT=8036" >&2
        exit 1
    fi
    sleep 0.2
done
token=$(sed -n 's/^token: //p' "$said")

post() { # a message of OwnTracks: latitude, longitude
    message="{\"_type\":\"location\",\"lat\":$1,\"lon\":$2,\"tst\":$(date +%s),\"tid\":\"me\",\"batt\":61,\"vel\":4}"
    echo "   phone -> gateway   $message"
    answer=$(curl --silent --show-error --fail --user "me:$token" --header "Content-Type: application/json" \
        --data "$message" "$url/owntracks")
    echo "   gateway -> world   $answer"
}

echo "== the gateway runs at $url; OwnTracks posts where the phone is:"
post 60.169900 24.938400
echo "== the same again: it came too soon after the last one, so it costs nothing"
post 60.169911 24.938433
echo "== the budget"
curl --silent --show-error --fail --header "Authorization: Bearer $token" "$url/v1/budget" |
    "$bin/python" -m json.tool
echo "== stopping it"
