import { defineConfig } from 'rolldown';

// Bundles the compiled scripts of the page. Only readers with a pinned key load prove.js.
export default defineConfig({
  cwd: new URL('../../../dist/', import.meta.url).pathname,
  input: { verify: 'api/public/browser/verify.js' },
  platform: 'browser',
  output: {
    dir: 'page',
    cleanDir: true,
    format: 'esm',
    minify: true,
    chunkFileNames: '[name].js',
  },
  // Every warning fails the build.
  onLog: (_level, log) => {
    throw new Error(log.message);
  },
});
