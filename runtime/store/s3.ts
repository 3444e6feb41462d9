import {
  DeleteObjectCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  NoSuchKey,
  PutObjectCommand,
  S3Client,
  S3ServiceException,
} from '@aws-sdk/client-s3';
import {
  ATTEMPTS,
  BucketStore,
  CONNECT_MS,
  SILENT_MS,
  type ObjectHeaders,
  type OpenedObject,
} from './bucket.js';

/**
 * A bucket of Amazon S3, or of another server with its API. Region, endpoint and credentials are
 * settings of the AWS SDK.
 */
export class S3Store extends BucketStore {
  protected readonly unusedTag = '"none"';
  private readonly client: S3Client;

  /** @param silentMs milliseconds without data after which a connection is closed */
  constructor(where: string, silentMs = SILENT_MS) {
    super(where);
    this.client = new S3Client({
      maxAttempts: ATTEMPTS,
      // Every server accepts the bucket in the path; a host name with the bucket needs DNS and a certificate.
      forcePathStyle: true,
      // Servers other than Amazon's reject the checksums that the SDK adds by default.
      requestChecksumCalculation: 'WHEN_REQUIRED',
      responseChecksumValidation: 'WHEN_REQUIRED',
      requestHandler: { connectionTimeout: CONNECT_MS, socketTimeout: silentMs },
    });
  }

  protected async open(
    Key: string,
    IfNoneMatch: string | undefined,
    abortSignal: AbortSignal,
  ): Promise<OpenedObject | 'unchanged' | null> {
    const command = new GetObjectCommand({ Bucket: this.bucket, Key, IfNoneMatch });
    try {
      const { Body, ETag = '' } = await this.client.send(command, { abortSignal });
      return { body: Body as AsyncIterable<Uint8Array>, tag: ETag };
    } catch (error) {
      if (statusOf(error) === 304) return 'unchanged';
      if (error instanceof NoSuchKey) return null;
      throw error;
    }
  }

  protected async write(
    Key: string,
    Body: Uint8Array,
    present: string | null,
    { contentType, cacheControl }: ObjectHeaders,
    abortSignal: AbortSignal,
  ): Promise<string | null> {
    const command = new PutObjectCommand({
      Bucket: this.bucket,
      Key,
      Body,
      ContentType: contentType,
      CacheControl: cacheControl,
      ...(present === null ? { IfNoneMatch: '*' } : { IfMatch: present }),
    });
    try {
      return (await this.client.send(command, { abortSignal })).ETag ?? '';
    } catch (error) {
      // 409: another write of the object is under way. 404: If-Match without an object.
      const isRefused = [404, 409, 412].includes(statusOf(error) ?? 0);
      if (isRefused && (error as Error).name !== 'NoSuchBucket') return null;
      throw error;
    }
  }

  protected async listPage(Prefix: string, token: string | undefined, abortSignal: AbortSignal) {
    const options = { Bucket: this.bucket, Prefix, ContinuationToken: token };
    const page = await this.client.send(new ListObjectsV2Command(options), { abortSignal });
    const keys = (page.Contents ?? []).map(({ Key = '' }) => Key);
    return { keys, next: page.NextContinuationToken };
  }

  protected async removeObject(Key: string, abortSignal: AbortSignal): Promise<void> {
    const command = new DeleteObjectCommand({ Bucket: this.bucket, Key });
    await this.client.send(command, { abortSignal });
  }
}

const statusOf = (error: unknown): number | undefined =>
  error instanceof S3ServiceException ? error.$metadata.httpStatusCode : undefined;
