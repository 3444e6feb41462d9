/** The part of libsodium's binding that the project uses. */
declare module 'sodium-native' {
  const sodium: {
    /** Signature 64 bytes, public key 32 bytes; throws for other lengths. */
    crypto_sign_verify_detached(
      signature: Uint8Array,
      message: Uint8Array,
      publicKey: Uint8Array,
    ): boolean;
    /** Writes a signature of 64 bytes. */
    crypto_sign_detached(signature: Buffer, message: Uint8Array, secretKey: Buffer): void;
    /** Writes a public key of 32 and a secret key of 64 bytes, from a seed of 32. */
    crypto_sign_seed_keypair(publicKey: Buffer, secretKey: Buffer, seed: Buffer): void;
    /** Memory between guard pages, locked and excluded from core dumps. */
    sodium_malloc(size: number): Buffer;
    sodium_mprotect_readonly(memory: Buffer): void;
  };
  export default sodium;
}
