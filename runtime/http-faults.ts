import type { IncomingMessage } from 'node:http';

/**
 * What is wrong with a request that Node's parser lets pass; null for most. Whatever a proxy in front
 * might read in another way is refused here, so that no two of them can disagree about where a request
 * ends or whom it is for (RFC 9112, 3.2 and 6.1).
 */
export function faultOf(
  request: IncomingMessage,
  maxHeaders: number,
): 'malformed_request' | 'headers_too_large' | null {
  const { rawHeaders, httpVersionMajor, httpVersionMinor } = request;
  if (rawHeaders.length > 2 * maxHeaders) return 'headers_too_large';
  if (httpVersionMajor !== 1) return 'malformed_request';
  let hosts = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    if (rawHeaders[i]!.length === 4 && rawHeaders[i]!.toLowerCase() === 'host') hosts += 1;
  }
  const isHostMissing = hosts === 0 && httpVersionMinor > 0;
  if (hosts > 1 || isHostMissing) return 'malformed_request';
  const coding = request.headers['transfer-encoding'];
  if (coding === undefined) return null;
  // `identity, chunked` and chunks in HTTP/1.0 are read in one way by some and in another by others.
  const isPlain = coding.toLowerCase() === 'chunked' && httpVersionMinor > 0;
  return isPlain ? null : 'malformed_request';
}
