/** A public key of ECDSA with P-256: two coordinates of 32 bytes, big-endian. */
export interface P256Key {
  x: Uint8Array;
  y: Uint8Array;
}

/**
 * Verifies an ECDSA signature with P-256 and SHA-256; `signature` is r ‖ s, 64 bytes. False for
 * malformed input; never throws.
 */
export type P256Verify = (key: P256Key, message: Uint8Array, signature: Uint8Array) => boolean;

/** Field prime and the coefficient b of the curve (SP 800-186 §3.2.1.3). */
const P = 2n ** 256n - 2n ** 224n + 2n ** 192n + 2n ** 96n - 1n;
const B = 0x5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604bn;

/** Whether the coordinates are those of a point on the curve, which the key of a weak curve is not. */
export function isOnP256(key: P256Key): boolean {
  if (key.x.length !== COORDINATE_BYTES || key.y.length !== COORDINATE_BYTES) return false;
  const [x, y] = [bigEndian(key.x), bigEndian(key.y)];
  return x < P && y < P && (y * y - (x * x * x - 3n * x + B)) % P === 0n;
}

const COORDINATE_BYTES = 32;
const SEQUENCE = 0x30;
const INTEGER = 0x02;

/** r ‖ s of an ECDSA signature in DER (RFC 3279 §2.2.3), 64 bytes; null for any other encoding. */
export function fromDer(der: Uint8Array): Uint8Array | null {
  if (der[0] !== SEQUENCE || der[1] !== der.length - 2) return null;
  const signature = new Uint8Array(2 * COORDINATE_BYTES);
  let at = 2;
  for (const end of [COORDINATE_BYTES, 2 * COORDINATE_BYTES]) {
    const length = der[at + 1] ?? 0;
    const integer = der.subarray(at + 2, at + 2 + length);
    if (der[at] !== INTEGER || integer.length !== length || !isShortestPositive(integer))
      return null;
    const digits = integer[0] === 0 ? integer.subarray(1) : integer;
    if (digits.length > COORDINATE_BYTES) return null;
    signature.set(digits, end - digits.length);
    at += 2 + length;
  }
  return at === der.length ? signature : null;
}

function isShortestPositive(integer: Uint8Array): boolean {
  const [first = 0, second = 0] = integer;
  return first === 0 ? integer.length > 1 && second >= 0x80 : first < 0x80;
}

function bigEndian(bytes: Uint8Array): bigint {
  return bytes.reduce((value, byte) => (value << 8n) | BigInt(byte), 0n);
}
