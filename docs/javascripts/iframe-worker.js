/* Search runs in a Worker, which browsers refuse to pages opened from a folder (file://). There, and
   only there, a hidden frame takes its place: it runs the script and passes messages both ways. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      this.inside = frame.contentWindow
      this.inside.postMessage = (data) => {
        this.dispatchEvent(new MessageEvent("message", { data }))
        if (this.onmessage) this.onmessage({ data })
      }
      const script = this.inside.document.createElement("script")
      this.ready = new Promise((done, failed) => {
        script.onload = done
        script.onerror = failed
      })
      script.src = new URL(url, document.baseURI)
      this.inside.document.head.appendChild(script)
    }

    postMessage(data) {
      this.ready.then(() => {
        this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }))
      })
    }

    terminate() {
      this.inside.frameElement.remove()
    }
  }
}
