# For tests, what of the official image nginx:stable is of use here, from Debian's package, with temporary
# files where the official one has them.
FROM debian:bookworm-slim
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nginx-light \
    && rm -f /etc/nginx/sites-enabled/* \
    && rm -rf /var/lib/nginx && mkdir /var/cache/nginx && ln -s /var/cache/nginx /var/lib/nginx \
    && ln -sf /dev/stdout /var/log/nginx/access.log \
    && ln -sf /dev/stderr /var/log/nginx/error.log
STOPSIGNAL SIGQUIT
CMD ["nginx", "-g", "daemon off;"]
