import { GetPublicKeyCommand, KMSClient, SignCommand } from '@aws-sdk/client-kms';
import { OperatorError } from '../process/operator-error.js';
import { publicKeyInSpki, type Signer } from './node.js';

const TIMEOUT_MS = 5_000;

/**
 * A key of AWS KMS with the key spec `ECC_NIST_EDWARDS25519`: `awskms:///<key id, alias or ARN>`.
 * Region, credentials and endpoint come from the AWS SDK's own settings.
 */
export async function openKmsKey(uri: string): Promise<Signer> {
  const [, KeyId = ''] = /^awskms:\/\/\/(.+)$/.exec(uri) ?? [];
  if (KeyId === '')
    throw new OperatorError(`${uri} is not of the form awskms:///<key id, alias or ARN>`);
  const client = new KMSClient({});
  const call = async <T>(what: string, send: (abort: AbortSignal) => Promise<T>): Promise<T> => {
    try {
      return await send(AbortSignal.timeout(TIMEOUT_MS));
    } catch (cause) {
      const { name, message } = cause as Error;
      throw new OperatorError(`AWS KMS: ${what} failed for ${uri}: ${name}: ${message}`, { cause });
    }
  };
  const { PublicKey } = await call('GetPublicKey', (abortSignal) =>
    client.send(new GetPublicKeyCommand({ KeyId }), { abortSignal }),
  );
  return {
    publicKey: publicKeyInSpki(uri, PublicKey ?? new Uint8Array()),
    sign: async (Message) => {
      const command = new SignCommand({
        KeyId,
        Message,
        MessageType: 'RAW',
        SigningAlgorithm: 'ED25519_SHA_512',
      });
      const { Signature } = await call('Sign', (abortSignal) =>
        client.send(command, { abortSignal }),
      );
      return Signature ?? new Uint8Array();
    },
  };
}
