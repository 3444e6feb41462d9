/** Declares only verification of libsodium's binding, so that no code can sign with it. */
declare module 'sodium-native' {
  const sodium: {
    /** Signature 64 bytes, public key 32 bytes; throws for other lengths. */
    crypto_sign_verify_detached(
      signature: Uint8Array,
      message: Uint8Array,
      publicKey: Uint8Array,
    ): boolean;
  };
  export default sodium;
}
